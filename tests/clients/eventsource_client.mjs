// The eventsource package, which does for Node what browsers do, as it is, against a daemon:
// node eventsource_client.mjs URL FOLDER_WITH_NODE_MODULES
// Prints a line for each behaviour; leaves with 1 at the first that is not as it should be.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import net from "node:net";

const [url, folder] = process.argv.slice(2);
const { EventSource } = createRequire(`${folder}/`)("eventsource");
const asked = { prompt: "The history of ", max_tokens: 40, seed: 7 };
const query = `/generate?${new URLSearchParams(asked)}`;

// What comes until the source is closed, by itself or, with closes, at the event that says so.
function read(path, closes, base = url) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(base + path);
    const told = { text: "", ends: 0, errors: [], id: "", seed: 0 };
    setTimeout(() => reject(new Error(`still open: ${JSON.stringify(told)}`)), 60000).unref();
    source.onmessage = (event) => {
      const piece = JSON.parse(event.data);
      told.text += piece.text ?? "";
      told.ends += piece.finish_reason ? 1 : 0;
      told.id = event.lastEventId;
      told.seed = piece.seed;
      if (piece.finish_reason && closes) {
        source.close();
        resolve(told);
      }
    };
    source.onerror = (error) => {
      told.errors.push(error.code);
      if (source.readyState === source.CLOSED) resolve(told);
    };
  });
}

const headers = { "Content-Type": "application/json" };
async function wholeText(fields) {
  return (await fetch(`${url}/generate`, { method: "POST", headers, body: JSON.stringify(fields) })).json();
}
const whole = await wholeText(asked);

const behaviours = {
  async "a text is read and the source closed at its end"() {
    const told = await read(query, true);
    assert.equal(told.text, whole.text);
    assert.match(told.id, /^1\.7\.[0-9a-f.]+\.28\.z$/);
    assert.deepEqual([told.ends, told.errors], [1, []]);
  },

  async "a source that is not closed asks again, and gives up"() {
    const told = await read(query, false);
    assert.equal(told.text, whole.text); // once
    assert.deepEqual([told.ends, told.errors.at(-1)], [1, 204]);
  },

  async "a connection that breaks in the middle, twice, loses nothing"() {
    const { hostname, port } = new URL(url);
    let connections = 0;
    const proxy = net.createServer((client) => {
      const daemon = net.connect(Number(port), hostname);
      const breaks = connections++ < 2;
      client.pipe(daemon);
      daemon.on("data", (bytes) => {
        client.write(bytes, () => breaks && bytes.includes("data: ") && client.destroy());
      });
      daemon.on("close", () => client.end());
      client.on("close", () => daemon.destroy()).on("error", () => {});
      daemon.on("error", () => {});
    });
    await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
    const long = `/generate?prompt=${encodeURIComponent(asked.prompt)}&max_tokens=3000`; // the daemon chooses a seed
    const told = await read(long, true, `http://127.0.0.1:${proxy.address().port}`);
    proxy.close();
    assert.deepEqual([told.ends, connections], [1, 3]);
    assert.equal(told.text, (await wholeText({ prompt: asked.prompt, max_tokens: 3000, seed: told.seed })).text);
  },

  async "an error ends it"() {
    assert.deepEqual((await read("/generate?prompt=x&max_tokens=0", false)).errors, [400]);
    assert.deepEqual((await read("/generate", false)).errors, [400]);
  },
};

for (const [name, behaviour] of Object.entries(behaviours)) {
  await behaviour();
  console.log(`ok ${name}`);
}
