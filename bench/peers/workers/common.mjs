// Shared code of the Node peers; the counterpart of common.py.
import fs from "node:fs";
import path from "node:path";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";

const { env } = process;
// The packages are in a directory outside the project.
export const require = createRequire(path.join(env.PEER_NODE_MODULES, "package.json"));
export const DATABASE_URL = env.DATABASE_URL;
export const COUNT = Number(env.PEER_COUNT);
export const FIRST = Number(env.PEER_FIRST);
export const RATE = Number(env.PEER_RATE);
export const PUBLISHES = env.PEER_MODE === "publish";
export const SETTINGS = JSON.parse(env.PEER_SETTINGS);
const BODY = Buffer.from(env.PEER_BODY);

export const dueTimes = () => Array.from({ length: COUNT }, (_, n) => FIRST + (RATE ? n / RATE : 0));
const now = () => (performance.timeOrigin + performance.now()) / 1000;

let count = 0, first = 0, last = 0, written = 0;
const lags = [];
export function begin() {
  if (first) return;
  first = now();
  const file = path.join(env.PEER_DIR, `${process.pid}.meter`);
  setInterval(() => {
    if (count === written) return;
    written = count;
    fs.writeFileSync(`${file}.new`, JSON.stringify({ count, first, last, lags }));
    fs.renameSync(`${file}.new`, file);
  }, 20);
}
export function end(due) {
  count += 1;
  last = now();
  if (RATE) lags.push((last - due) * 1000);
}

export async function waitForGo() {
  fs.writeFileSync(path.join(env.PEER_DIR, `${process.pid}.ready`), "");
  while (!fs.existsSync(path.join(env.PEER_DIR, "go"))) await new Promise((done) => setTimeout(done, 5));
}

let channel;
const returned = new Set(); // the broker returns unroutable messages before it confirms them
export async function connect() {
  const connection = await require("amqplib").connect(env.AMQP_URL);
  channel = await connection.createConfirmChannel();
  channel.on("return", (message) => returned.add(message.properties.messageId));
}
export const publish = () => new Promise((resolve, reject) => {
  const messageId = randomUUID();
  channel.publish("schedule.events", "due", BODY, {
    contentType: "application/json", persistent: true, mandatory: true, type: "ScheduleDue", appId: "scheduler",
    messageId, timestamp: Math.floor(Date.now() / 1000),
  }, (error) => (error || returned.delete(messageId) ? reject(error ?? new Error("returned")) : resolve()));
});
