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

const delay = (seconds) => seconds < 1 ? `${(seconds * 1000).toFixed(1)} ms` : duration(seconds);
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

// What it costs, and when, if nothing is done.
function loss(status) {
  const room = status.wal_room;
  return room.limited && room.seconds_left !== null
    ? `At the rate at which WAL is written now, the slot may be lost in ${duration(room.seconds_left)}.`
    : "Watch the disk of the primary.";
}

const kafkaIsAway = (status) => !status.sink.connected && status.in_flight.events > 0;

function words(status) {
  const waiting = status.in_flight.events;
  if (kafkaIsAway(status) && ["streaming", "backpressured"].includes(status.state)) {
    return `Kafka is out of reach. ${whole.format(waiting)} events wait in memory, later ones in the slot; nothing is lost. ${loss(status)}`;
  }
  switch (status.state) {
    case "starting": return "It starts: Kafka and PostgreSQL are asked before anything is streamed.";
    case "standby": return "Ready. Another walpost reads the slot; this one takes over when that is gone.";
    case "reconnecting": return `PostgreSQL is out of reach. It is tried again; nothing is lost meanwhile, the slot keeps the log.${status.wal_room.limited ? ` ${loss(status)}` : ""}`;
    case "draining": return "It stops, and waits for Kafka to take what is in flight.";
    case "halted": return ["slot_missing", "slot_invalidated"].includes(status.halt.reason)
      ? "It waits for you. The slot is gone, so keep the rows: what was not delivered is only in the tables."
      : `It waits for you. Nothing is lost: the slot keeps the log until then. ${loss(status)}`;
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

// Room for the slot on the server, and what monitor.conninfo says about it.
function roomFigures({ wal_room: room, monitor }) {
  const boxes = [];
  if (room.limited === false) { boxes.push(figure("room for the slot", "no limit but the disk", "busy")); }
  if (room.safe_bytes !== null) {
    const short = room.seconds_left !== null && room.seconds_left < 3600;
    boxes.push(figure("room for the slot", bytes(room.safe_bytes), room.safe_bytes === 0 ? "bad" : ""));
    boxes.push(figure("would be full in", room.seconds_left === null ? "not known yet" : duration(room.seconds_left), short ? "busy" : ""));
  }
  if (monitor?.slot) {
    boxes.push(figure("WAL kept for the slot", bytes(monitor.slot.retained_bytes)));
    boxes.push(figure("the slot is", monitor.slot.wal_status, { lost: "bad", unreserved: "bad", extended: "busy" }[monitor.slot.wal_status]));
  }
  return boxes;
}

function step(name, lines, bad) {
  const item = element("li");
  item.append(element("strong", name, bad ? "bad" : undefined), ...lines.filter((line) => line).map((line) => element("span", line)));
  return item;
}

function showWay(status) {
  const { source, sink, events, in_flight: flight } = status;
  fill("way", [
    step(`Slot ${source.slot}`, [source.connected ? `${source.host ?? ""}, ${source.database ?? ""}` : "not connected", source.server_wal_lsn ?? ""],
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
    ...roomFigures(status),
    figure("commit to Kafka, 99 %", delay.count ? `at most ${duration(delay.p99_at_most)}` : "no event yet"),
    figure("dead letters", whole.format(events.dead_lettered), events.dead_lettered ? "busy" : ""),
    figure("parked keys", whole.format(events.parked_keys), events.parked_keys ? "busy" : ""),
    figure("heard from PostgreSQL", ago(status, source.last_frame_at)),
    figure("memory", bytes(status.process.resident_bytes)),
  ];
  fill("figures", boxes);
  const trouble = status.monitor?.error;
  byId("monitor").hidden = !trouble;
  byId("monitor").textContent = trouble ? `What is shown of the slot comes from the stream alone; monitor.conninfo: ${trouble}` : "";
}

// `rows` of [text, class]; the columns' names are in each cell, too, for where there is no room for a head.
function table(columns, rows, className) {
  const made = element("table", undefined, className);
  const head = element("tr");
  head.append(...columns.map((name) => element("th", name)));
  const body = element("tbody");
  for (const cells of rows) {
    const row = element("tr");
    row.append(...cells.map(([text, cellClass], i) => {
      const cell = element("td", text, cellClass);
      cell.dataset.name = columns[i];
      return cell;
    }));
    body.append(row);
  }
  made.append(element("thead"), body);
  made.firstChild.append(head);
  return made;
}

function counted(title, column, counts) {
  const rows = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 20);
  return table([title, column], rows.map(([name, count]) => [[name], [whole.format(count)]]));
}

function brokers(status) {
  const errors = (b) => b.send_errors + b.receive_errors + b.timeouts;
  return table(["Broker", "state", "answer, 99 %", "waiting", "errors"], status.sink.brokers.map((b) => [
    [b.address], b.up ? ["connected"] : ["not connected", "bad"], [b.round_trip_p99_seconds ? delay(b.round_trip_p99_seconds) : "-"],
    [whole.format(b.queued_requests + b.waiting_requests)], [whole.format(errors(b))]]), "records");
}

function partitions(monitor) {
  const day = (time) => time ? time.slice(0, 10) : "-";
  return table(["Partitions of", "number", "oldest ends", "newest ends"],
    monitor.partitions.map((each) => [[each.table], [whole.format(each.count)], [day(each.oldest_end)], [day(each.newest_end)]]), "records");
}

function showEvents(status) {
  if (status.last_events.length === 0) {
    fill("events", [element("p", "none since the start")]);
    return;
  }
  const rows = status.last_events.map((event) => [
    [ago(status, event.delivered_at)], [event.type ?? "-"], [event.id ?? "-"], [event.topic],
    [event.partition === null ? "-" : `${event.partition} / ${event.offset ?? "-"}`], [event.commit_lsn ?? "-"], [delay(event.delay_seconds)]]);
  fill("events", [table(["delivered", "type", "id", "topic", "partition / offset", "commit LSN", "after"], rows, "records")]);
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
  fill("tables", [counted("Table", "received", events.by_table), counted("Topic", "delivered", events.by_topic),
    ...status.sink.brokers.length ? [brokers(status)] : [], ...status.monitor?.partitions.length ? [partitions(status.monitor)] : []]);
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
  showEvents(status);
  byId("error").textContent = status.last_error ? status.last_error + (status.last_error_at ? ` (${ago(status, status.last_error_at)})` : "") : "none";
  const server = status.source.server_version;
  byId("version").textContent = `walpost ${status.version}${server ? `, PostgreSQL ${Math.floor(server / 10000)}` : ""}`;
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

// Without the name and password that the page's own address may have, which fetch rejects.
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
  byId("words").textContent = error.message === "HTTP 401"
    ? "walpost has another token now. Reload this page to log in. What is below is from before."
    : `walpost does not answer (${error.message}). What is below is from before.`;
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
