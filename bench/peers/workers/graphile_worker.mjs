// graphile-worker: `prepare` stores the jobs, `work` handles them.
import * as common from "./common.mjs";

const { makeWorkerUtils, run, Logger } = common.require("graphile-worker");
const logger = new Logger(() => (level, message) => { if (level === "error") console.error(message); });

async function prepare() {
  const utils = await makeWorkerUtils({ connectionString: common.DATABASE_URL, logger });
  await utils.migrate();
  const times = common.dueTimes();
  for (let start = 0; start < times.length; start += 1000) {
    await utils.addJobs(times.slice(start, start + 1000).map((due) => (
      { identifier: "handle", payload: { due }, runAt: new Date(due * 1000) })));
  }
  await utils.release();
}

async function work() {
  const { concurrentJobs, pollInterval, localQueue, completeJobBatchDelay } = common.SETTINGS;
  if (common.PUBLISHES) await common.connect();
  await common.waitForGo();
  await run({
    logger,
    taskList: {
      handle: common.PUBLISHES
        ? async ({ due }) => { common.begin(); await common.publish(); common.end(due); }
        : async ({ due }) => { common.begin(); common.end(due); },
    },
    preset: {
      worker: {
        connectionString: common.DATABASE_URL, concurrentJobs, pollInterval, localQueue: { size: localQueue },
        completeJobBatchDelay, failJobBatchDelay: completeJobBatchDelay, maxPoolSize: 10,
      },
    },
  });
}

await { prepare, work }[process.argv[2]]();
