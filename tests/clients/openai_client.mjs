// OpenAI's own client for JavaScript, as it is, against a daemon: node openai_client.mjs URL FOLDER_WITH_NODE_MODULES FULL_URL CHAT_URL
// Prints a line for each behaviour; leaves with 1 at the first that is not as it should be. FULL_URL is of a daemon whose
// queue is full for a second, CHAT_URL of one with a model "chat" that has conversations.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [url, folder, fullUrl, chatUrl] = process.argv.slice(2);
const OpenAI = createRequire(`${folder}/`)("openai").OpenAI;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 60000 });
const model = "enwik8-aft-local";
const prompt = "The history of ";

const behaviours = {
  async "models are listed and found"() {
    const ids = [];
    for await (const one of client.models.list()) ids.push(one.id);
    assert.ok(ids.includes(model));
    assert.equal((await client.models.retrieve(model)).object, "model");
    await assert.rejects(client.models.retrieve("gpt-3"), OpenAI.NotFoundError);
  },

  async "a prompt is completed"() {
    const whole = await client.completions.create({ model, prompt, max_tokens: 20, seed: 1, logprobs: 2, echo: true });
    assert.equal(whole.object, "text_completion");
    assert.ok(whole.choices[0].text.startsWith(prompt));
    assert.equal(whole.choices[0].finish_reason, "length");
    assert.equal(whole.choices[0].logprobs.tokens.length, prompt.length + 20);
    assert.deepEqual(whole.usage, {
      prompt_tokens: 15,
      completion_tokens: 20,
      total_tokens: 35,
      prompt_tokens_dropped: 0,
      prompt_tokens_details: { cached_tokens: 0 }, // too short for a state to be kept of it
    });
  },

  async "a stream is the same text, with a chunk of usage"() {
    const asked = { model, prompt: [prompt, "In "], n: 2, max_tokens: 25, seed: 5 };
    const whole = await client.completions.create(asked);
    const texts = ["", "", "", ""];
    let usage = null, finished = 0;
    const stream = await client.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      for (const choice of chunk.choices) {
        texts[choice.index] += choice.text;
        finished += choice.finish_reason === "length" ? 1 : 0;
      }
      usage = chunk.usage ?? usage;
    }
    assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
    assert.equal(finished, 4);
    assert.deepEqual(usage, whole.usage);
  },

  async "a stream may be left"() {
    const stream = await client.completions.create({ model, prompt, max_tokens: 5000, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.choices[0].text);
      break;
    }
  },

  async "errors have their class"() {
    await assert.rejects(client.completions.create({ model: "gpt-3", prompt }), OpenAI.NotFoundError);
    await assert.rejects(client.completions.create({ model, prompt, suffix: "x" }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.status, 400);
      assert.equal(error.param, "suffix");
      assert.equal(error.type, "invalid_request_error");
      return true;
    });
    const messages = [{ role: "user", content: "Who?" }];
    await assert.rejects(client.chat.completions.create({ model, messages }), OpenAI.NotFoundError);
  },

  async "a conversation is answered, whole and in a stream"() {
    const chat = client.withOptions({ baseURL: `${chatUrl}/v1` }).chat.completions;
    const messages = [{ role: "developer", content: "Be brief." }, { role: "user", content: [{ type: "text", text: "Who?" }] }];
    const asked = { model: "chat", messages, max_completion_tokens: 40, seed: 3, logit_bias: { 10: -100 } };
    const whole = await chat.create(asked);
    assert.equal(whole.object, "chat.completion");
    assert.equal(whole.choices[0].message.role, "assistant");
    assert.equal(whole.choices[0].finish_reason, "length");
    assert.equal(whole.usage.prompt_tokens, "Be brief.\n\nQ: Who?\nA: ".length);
    const stream = await chat.create({ ...asked, stream: true, stream_options: { include_usage: true } });
    let text = "", role, finish, usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      role ??= chunk.choices[0]?.delta.role;
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.deepEqual([text, role, finish], [whole.choices[0].message.content, "assistant", "length"]);
    assert.deepEqual(usage, whole.usage);
    const gathered = await chat.stream(asked).finalChatCompletion();
    assert.equal(gathered.choices[0].message.content, text);
    await assert.rejects(chat.create({ ...asked, messages: [] }), OpenAI.BadRequestError);
    await assert.rejects(chat.create({ ...asked, tools: [{ type: "function", function: { name: "f" } }] }), (error) => {
      assert.equal(error.param, "tools");
      return error instanceof OpenAI.BadRequestError;
    });
  },

  async "a full queue is tried again"() {
    const full = client.withOptions({ baseURL: `${fullUrl}/v1` });
    const running = await full.completions.create({ model, prompt, max_tokens: 60000, stream: true });
    for await (const chunk of running) {
      assert.ok(chunk);
      const asked = { model, prompt, max_tokens: 1 };
      const depth = async () => /^aftd_queue_depth\{model="enwik8-aft-local"\} (\d+)/m.exec(await (await fetch(`${fullUrl}/metrics`)).text())[1];
      const waiting = full.completions.create(asked);
      for (const end = Date.now() + 20000; (await depth()) !== "1"; ) assert.ok(Date.now() < end, "nothing waits");
      await assert.rejects(full.completions.create(asked), (error) => {
        assert.ok(error instanceof OpenAI.InternalServerError);
        assert.equal(error.code, "queue_full");
        assert.ok(Number(error.headers.get("retry-after")) >= 1);
        return true;
      });
      setTimeout(() => running.controller.abort(), 500);
      assert.equal((await full.completions.create(asked, { maxRetries: 60 })).choices.length, 1);
      await waiting;
      break;
    }
  },
};

for (const [name, behaviour] of Object.entries(behaviours)) {
  await behaviour();
  console.log(`ok ${name}`);
}
