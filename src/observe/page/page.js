"use strict";
// Asks /status each second while it can be seen, /history every quarter of a minute, and shows what they say. Values go in as text.

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
let before = null; // the status before, for rates

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) { count /= 1000; place += 1; }
  return `${place === 0 || count >= 100 ? whole.format(count) : count.toFixed(1)} ${units[place]}`;
}

function duration(seconds) {
  if (seconds < 10) { return `${Math.max(0, seconds).toFixed(1)} s`; }
  if (seconds < 120) { return `${whole.format(seconds)} s`; }
  if (seconds < 7200) { return `${whole.format(seconds / 60)} min`; }
  return seconds < 172800 ? `${whole.format(seconds / 3600)} h` : `${whole.format(seconds / 86400)} days`;
}

const age = (status, time) => time ? (Date.parse(status.taken_at) - Date.parse(time)) / 1000 : null;
const ago = (status, time) => time ? `${duration(age(status, time))} ago` : "never";

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) { made.textContent = text; }
  if (className) { made.className = className; }
  return made;
}

function fill(id, children) { byId(id).replaceChildren(...children); }

function figure(name, value, className) {
  const box = element("div", undefined, className);
  box.append(element("dt", name), element("dd", value));
  return box;
}

function lateness(status) { return age(status, status.in_flight.oldest_commit_at) ?? 0; }

const kafkaIsAway = (status) => !status.sink.connected && status.in_flight.events > 0;

function words(status) {
  const waiting = status.in_flight.events;
  if (kafkaIsAway(status) && ["streaming", "backpressured"].includes(status.state)) {
    return `Kafka is out of reach. ${whole.format(waiting)} events wait in memory, later ones in the slot; nothing is lost. Watch the disk of the primary.`;
  }
  switch (status.state) {
    case "starting": return "It starts: Kafka and PostgreSQL are asked before anything is streamed.";
    case "standby": return "Ready. Another walpost reads the slot; this one takes over when that is gone.";
    case "reconnecting": return "PostgreSQL is out of reach. It is tried again; nothing is lost meanwhile, the slot keeps the log.";
    case "draining": return "It stops, and waits for Kafka to take what is in flight.";
    case "halted": return ["slot_missing", "slot_invalidated"].includes(status.halt.reason)
      ? "It waits for you. The slot is gone, so keep the rows: what was not delivered is only in the tables."
      : "It waits for you. Nothing is lost: the slot keeps the log until then, so watch the disk of the primary.";
    case "backpressured": return `Reading is paused until Kafka takes more: ${whole.format(waiting)} events are in flight.`;
    default:
      if (lateness(status) > 60) { return `Kafka does not take events: the oldest was committed ${duration(lateness(status))} ago.`; }
      return waiting === 0 ? "Everything that was received is in Kafka." : `${whole.format(waiting)} events are on their way to Kafka.`;
  }
}

function level(status) {
  if (status.state === "halted" || kafkaIsAway(status)) { return "bad"; }
  if (status.state === "streaming") { return lateness(status) > 60 ? "bad" : "good"; }
  return status.state === "standby" ? "good" : "busy";
}

function rate(status, read) {
  if (!before || before.started_at !== status.started_at) { return null; }
  const seconds = (Date.parse(status.taken_at) - Date.parse(before.taken_at)) / 1000;
  return seconds > 0 ? Math.max(0, read(status) - read(before)) / seconds : null;
}

const perSecond = (value) => value === null ? "" : `${whole.format(value)}/s`;

function step(name, lines, bad) {
  const item = element("li");
  item.append(element("strong", name, bad ? "bad" : undefined), ...lines.filter((line) => line).map((line) => element("span", line)));
  return item;
}

function showWay(status) {
  const { source, sink, events, in_flight: flight } = status;
  fill("way", [
    step(`Slot ${source.slot}`, [source.connected ? `${source.host}, ${source.database}` : "not connected", source.server_wal_lsn ?? ""],
      !source.connected && status.state !== "standby"),
    step("Decoded", [`${whole.format(events.received)} events`, perSecond(rate(status, (s) => s.events.received)), source.received_lsn ?? ""]),
    step("In flight", [`${whole.format(flight.events)} events`, `${bytes(flight.bytes)} of ${bytes(flight.bytes_max)}`,
      flight.oldest_commit_at ? `oldest ${ago(status, flight.oldest_commit_at)}` : ""], lateness(status) > 60),
    step("Kafka", [sink.connected ? `${whole.format(events.delivered)} delivered` : "not connected",
      perSecond(rate(status, (s) => s.events.delivered))], kafkaIsAway(status)),
    step("Confirmed", [source.confirmed_lsn ?? "nothing yet", `${bytes(source.lag_bytes)} behind`]),
  ]);
}

function showFigures(status) {
  const { source, in_flight: flight, delivery_delay_seconds: delay, events } = status;
  const late = lateness(status);
  const boxes = [
    figure("behind the server", bytes(source.lag_bytes), source.lag_bytes > 1e9 ? "busy" : ""),
    figure("oldest event in flight", flight.oldest_commit_at ? duration(late) : "none", late > 60 ? "bad" : ""),
    figure("commit to Kafka, 99 %", delay.count ? `at most ${duration(delay.p99_at_most)}` : "no event yet"),
    figure("dead letters", whole.format(events.dead_lettered), events.dead_lettered ? "busy" : ""),
    figure("parked keys", whole.format(events.parked_keys), events.parked_keys ? "busy" : ""),
    figure("heard from PostgreSQL", ago(status, source.last_frame_at)),
    figure("memory", bytes(status.process.resident_bytes)),
  ];
  fill("figures", boxes);
}

function table(title, column, counts) {
  const made = element("table");
  const head = element("tr");
  head.append(element("th", title), element("th", column));
  made.append(head);
  const rows = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 20);
  for (const [name, count] of rows) {
    const row = element("tr");
    row.append(element("td", name), element("td", whole.format(count)));
    made.append(row);
  }
  return made;
}

function showCounts(status) {
  const { events } = status;
  const shown = ["received", "delivered", "dead_lettered", "parked", "skipped", "discarded", "repeated"];
  fill("counts", [
    ...shown.map((name) => figure(name.replace("_", "-"), whole.format(events[name]))),
    figure("transactions", whole.format(status.transactions)),
    figure("reconnects", whole.format(status.reconnects)),
    figure("running for", duration(age(status, status.started_at) ?? 0)),
  ]);
  fill("tables", [table("Table", "received", events.by_table), table("Topic", "delivered", events.by_topic)]);
}

function show(status) {
  document.title = `${status.state} - ${status.name} - walpost`;
  byId("name").textContent = status.name;
  const state = byId("state");
  if (state.textContent !== status.state) { state.textContent = status.state; }
  state.className = `state ${level(status)}`;
  byId("since").textContent = `for ${duration(age(status, status.state_since) ?? 0)}`;
  byId("words").textContent = words(status);
  byId("halt").hidden = !status.halt;
  if (status.halt) {
    byId("halt-title").textContent = status.halt.reason;
    byId("halt-detail").textContent = status.halt.detail;
    byId("halt-section").textContent = status.halt.reason;
  }
  showWay(status);
  showFigures(status);
  showCounts(status);
  byId("error").textContent = status.last_error ? status.last_error + (status.last_error_at ? ` (${ago(status, status.last_error_at)})` : "") : "none";
  byId("version").textContent = `walpost ${status.version}, PostgreSQL ${Math.floor(status.source.server_version / 10000)}`;
  before = status;
}

const charts = [
  { title: "events delivered", unit: (v) => `${whole.format(v)}/s`, read: (h) => slope(h.at_ms, h.delivered) },
  { title: "behind the server", unit: bytes, read: (h) => h.lag_bytes },
  { title: "events in flight", unit: (v) => whole.format(v), read: (h) => h.in_flight_events },
  { title: "oldest event in flight", unit: duration, read: (h) => h.oldest_age_ms.map((ms) => ms / 1000) },
];

function slope(times, counts) {
  return counts.map((count, i) => i === 0 ? 0 : Math.max(0, (count - counts[i - 1]) * 1000 / Math.max(1, times[i] - times[i - 1])));
}

function chart(history, { title, unit, read }) {
  const values = read(history);
  const top = Math.max(...values, 0);
  const begin = history.at_ms[0] ?? 0;
  const span = Math.max(1, (history.at_ms.at(-1) ?? 0) - begin);
  const path = values.map((value, i) => {
    const x = (history.at_ms[i] - begin) / span * 240;
    const y = 58 - (top > 0 ? value / top : 0) * 54;
    return `${i === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
  const made = element("figure");
  const now = values.at(-1) ?? 0;
  made.append(element("figcaption", `${title}: ${unit(now)}, highest ${unit(top)}`));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 240 60");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true"); // the caption says it
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  svg.append(line);
  made.append(svg);
  return made;
}

// Without the name and password that the page's own address may have, which fetch refuses.
const here = location.origin + location.pathname;

async function ask(path) {
  const answer = await fetch(new URL(path, here), { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) { throw new Error(`HTTP ${answer.status}`); }
  return answer;
}

function unreachable(error) {
  byId("state").textContent = "not reachable";
  byId("state").className = "state bad";
  byId("since").textContent = "";
  byId("words").textContent = `walpost does not answer (${error.message}). What is below is from before.`;
  document.title = "not reachable - walpost";
}

async function turn(path, every, use) {
  try {
    if (!document.hidden) { await use(await ask(path)); }
  } catch (error) {
    if (path === "status") { unreachable(error); }
  }
  setTimeout(turn, every, path, every, use);
}

turn("status", 1000, async (answer) => show(await answer.json()));
turn("history", 15000, async (answer) => {
  const history = await answer.json();
  fill("charts", charts.map((each) => chart(history, each)));
});
byId("configuration").addEventListener("toggle", async () => {
  try {
    byId("configuration-text").textContent = await (await ask("configuration")).text();
  } catch (error) {
    byId("configuration-text").textContent = error.message;
  }
});
