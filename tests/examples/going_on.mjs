// node going_on.mjs [URL [PROMPT [BYTES]]]: a text as it is written, whatever becomes of the connection or the daemon.
const [url = "http://127.0.0.1:8080", prompt = "The history of ", bytes = "200"] = process.argv.slice(2);

/** Yields the text piece by piece; throws what cannot pass, and what has not passed after so many tries. */
async function* generate(address, fields, tries = 8) {
  const body = { ...fields, stream: true, moves: true };
  for (let left = tries; ; left--) {
    let failure = new Error("the text ends in the middle");
    try {
      const headers = { "Content-Type": "application/json" };
      const answer = await fetch(`${address}/generate`, { method: "POST", headers, body: JSON.stringify(body) });
      if (!answer.ok) throw Object.assign(new Error(await answer.text()), { status: answer.status });
      let [rest, id] = ["", ""];
      for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + piece).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith("id: ")) id = line.slice(4);
          if (!line.startsWith("data: ")) continue;
          const event = JSON.parse(line.slice(6));
          body.from = id;
          if (event.error) throw Object.assign(new Error(event.error.message), { status: 500 });
          if ("text" in event) yield event.text;
          else if (event.finish_reason !== "moved") return;
          if ("text" in event) left = tries;
        }
      }
    } catch (error) {
      failure = error;
    }
    if (left === 0 || (failure.status && ![502, 503, 504].includes(failure.status))) throw failure;
    const ms = Math.min(5000, 200 * 2 ** (tries - left)) * (0.5 + Math.random() / 2);
    await new Promise((done) => setTimeout(done, ms));
  }
}

for await (const piece of generate(url, { prompt, max_tokens: Number(bytes), seed: 1 })) process.stdout.write(piece);
process.stdout.write("\n");
