// The page: signs in, asks for the overview every few seconds, and makes changes after showing their effect.
"use strict";

const EVERY = 5000;
const $ = id => document.getElementById(id);
let token = "", timer = 0, overview = null, wanted = null;

async function ask(path, body) {
  const how = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Console-Token": token },
    body: JSON.stringify(body),
  };
  const r = await fetch("/api/" + path, { credentials: "same-origin", ...how });
  const text = await r.text();
  let v = {};
  try { v = JSON.parse(text); } catch { v = { error: text.trim() }; }
  if (r.status === 401 && path !== "sign-in") { signedOut(); throw new Error("signed out"); }
  if (!r.ok) throw new Error(v.error || r.statusText);
  return v;
}

function signedOut() {
  clearTimeout(timer);
  token = "";
  $("sign").hidden = false;
  for (const id of ["view", "nav", "out"]) $(id).hidden = true;
  for (const id of ["who", "word"]) $(id).textContent = "";
  $("sign").elements.key.focus();
}

function fill(id, ...nodes) { $(id).replaceChildren(...nodes); }
function list(v) { return Array.isArray(v) ? v : []; }
function none(text) { return make("p", { class: "dim" }, text); }
function tile(label, value, small) {
  return make("div", { class: "tile" }, label, make("b", {}, value), make("span", { class: "dim" }, small || ""));
}

function showHealth(h) {
  const word = (h && h.status) || "unknown";
  const kind = word === "HEALTH_OK" ? "ok" : word === "HEALTH_WARN" ? "warn" : "err";
  $("word").textContent = word;
  $("word").className = "word " + kind;
  document.title = `${word} · Belemnite`;
  const checks = Object.entries((h && h.checks) || {});
  fill("reasons", ...checks.map(([name, c]) => {
    const details = list(c.detail).map(d => make("li", {}, d.message || ""));
    return make("details", {}, make("summary", { class: c.severity === "HEALTH_ERR" ? "err" : "warn" },
      `${name}: ${(c.summary && c.summary.message) || ""}`), make("ul", {}, ...details.slice(0, 50)));
  }));
  const slow = h && h.checks && h.checks.SLOW_OPS;
  fill("slow", slow ? make("ul", {}, make("li", {}, slow.summary.message),
    ...list(slow.detail).map(d => make("li", {}, d.message))) : none("none"));
}

function showStatus(s, df, history) {
  const pg = s.pgmap || {}, osd = s.osdmap || {}, n = k => Number(pg[k] || 0);
  const total = n("bytes_total"), used = n("bytes_used");
  const bad = n("degraded_objects") + n("misplaced_objects"), rate = n("recovering_objects_per_sec");
  const full = history.full_in_seconds;
  fill("tiles",
    tile("Used", bytes(used), `of ${bytes(total)}` + (total ? `, ${(100 * used / total).toFixed(1)} %` : "")),
    tile("Full at this growth", full ? "in " + duration(full) : "not growing", ""),
    tile("OSDs", `${osd.num_up_osds || 0} up, ${osd.num_in_osds || 0} in`, `of ${osd.num_osds || 0}`),
    tile("Reads", bytes(n("read_bytes_sec")) + "/s", `${n("read_op_per_sec")} op/s`),
    tile("Writes", bytes(n("write_bytes_sec")) + "/s", `${n("write_op_per_sec")} op/s`),
    tile("Recovery", bad ? bytes(n("recovering_bytes_per_sec")) + "/s" : "nothing to do",
      bad ? `${bad} copies, ` + (rate ? duration(bad / rate) + " left" : "no rate yet") : ""));
  const states = list(pg.pgs_by_state);
  fill("pgs", states.length ? table([">PGs", "State"], states.map(p => [String(p.count), p.state_name])) : none("no PGs"));
}

function showHistory(h) {
  const rows = list(h.hour), at = name => list(h.names).indexOf(name);
  const line = (label, name) => ({ label, points: rows.map(r => [r[0], r[at(name)]]) });
  const ms = v => v.toFixed(1) + " ms", per = v => bytes(v) + "/s", ops = v => v.toFixed(0) + " op/s";
  fill("charts",
    chart("Throughput", [line("read", "read_bytes"), line("written", "written_bytes")], per),
    chart("Operations", [line("reads", "reads"), line("writes", "writes")], ops),
    chart("Commit latency of OSDs", [line("mean", "commit_ms"), line("slowest", "commit_ms_max")], ms),
    chart("Used space", [line("used", "used")], bytes));
}

function meter(percent) {
  const m = make("meter", { min: "0", max: "100", high: "85", value: String(percent || 0) });
  m.title = (percent || 0).toFixed(1) + " %";
  return m;
}

function showTree(tree, perf) {
  const nodes = list(tree.nodes), by = new Map(nodes.map(n => [n.id, n]));
  const infos = list(perf.osdstats && perf.osdstats.osd_perf_infos);
  const ms = new Map(infos.map(i => [i.id, i.perf_stats.commit_latency_ms]));
  const inside = new Set(nodes.flatMap(n => list(n.children)));
  const rows = [], seen = new Set();
  const walk = (n, depth) => {
    if (!n || seen.has(n.id) || depth > 20) return;
    seen.add(n.id);
    const osd = n.type === "osd";
    const state = osd ? n.status + (n.reweight === 0 ? ", out" : "") : "";
    const mark = make("span", { class: osd ? (n.status === "up" ? "ok" : "err") : "" }, state);
    rows.push(["\u2003".repeat(depth) + n.name, n.device_class || "", mark, bytes((n.kb || 0) * 1024), meter(n.utilization),
      osd ? String(n.pgs) : "", osd && ms.has(n.id) ? String(ms.get(n.id)) : ""]);
    for (const c of list(n.children)) walk(by.get(c), depth + 1);
  };
  nodes.filter(n => !inside.has(n.id)).forEach(n => walk(n, 0));
  fill("tree", rows.length ? table(["Name", "Class", "State", ">Size", "Used", ">PGs", ">Commit ms"], rows) : none("no OSDs"));
}

function showPools(df, io) {
  const rate = new Map(list(io).map(p => [p.pool_name, p.client_io_rate || {}]));
  const rows = list(df.pools).map(p => {
    const s = p.stats || {}, r = rate.get(p.name) || {};
    return [p.name, bytes(s.stored || 0), String(s.objects || 0), meter(100 * (s.percent_used || 0)), bytes(s.max_avail || 0),
      bytes(r.read_bytes_sec || 0) + "/s", bytes(r.write_bytes_sec || 0) + "/s"];
  });
  fill("poollist", rows.length
    ? table(["Pool", ">Stored", ">Objects", "Used", ">Still fits", ">Read", ">Written"], rows) : none("no pools"));
}

async function refresh() {
  clearTimeout(timer);
  try {
    const o = await ask("overview");
    const h = await ask("history");
    overview = o;
    token = o.token || token;
    $("sign").hidden = true;
    for (const id of ["view", "nav", "out"]) $(id).hidden = false;
    $("who").textContent = "client." + o.user;
    showHealth(o.health);
    showStatus(o.status || {}, o.df || {}, h);
    showHistory(h);
    showTree(o.tree || {}, o.perf || {});
    showPools(o.df || {}, o.pools || []);
    $("failed").textContent = Object.entries(o).filter(([, v]) => v && v.error).map(([k, v]) => `${k}: ${v.error}`).join("; ");
    if (!$("which").options.length) await loadChanges();
  } catch (e) {
    if (!token) return;
    $("failed").textContent = e.message;
  }
  timer = setTimeout(refresh, EVERY);
}

let changes = [];

async function loadChanges() {
  changes = await ask("changes");
  fill("which", ...changes.map(c => make("option", { value: c.name }, c.title)));
  showFields();
}

function input(f) {
  const options = values => make("select", { name: f.name }, ...values.map(v => make("option", { value: v }, v)));
  if (Array.isArray(f.kind)) return options(f.kind);
  if (f.kind === "osd") {
    return options(list(overview.tree && overview.tree.nodes).filter(n => n.type === "osd").map(n => String(n.id)));
  }
  if (f.kind === "pool") return options(list(overview.df && overview.df.pools).map(p => p.name));
  return make("input", { name: f.name, required: "", autocomplete: "off", maxlength: "256" });
}

function showFields() {
  const c = changes.find(c => c.name === $("which").value);
  fill("fields", ...(c ? c.fields.map(f => make("label", {}, f.label, input(f))) : []));
  $("preview").hidden = true;
}

async function preview(event) {
  event.preventDefault();
  const values = {};
  for (const e of $("fields").querySelectorAll("[name]")) values[e.name] = e.value;
  wanted = { change: $("which").value, values };
  $("result").textContent = "";
  try {
    const p = await ask("preview", wanted);
    fill("effect", ...p.effect.map(s => make("li", {}, s)));
    $("command").textContent = p.command;
    $("preview").hidden = false;
    $("apply").focus();
  } catch (e) { $("result").textContent = e.message; }
}

async function apply() {
  $("apply").disabled = true;
  try {
    const r = await ask("apply", wanted);
    $("result").textContent = (r.done ? "Done: " : "Refused: ") + (r.text || r.command);
    $("result").className = r.done ? "ok" : "err";
    $("preview").hidden = true;
    await refresh();
  } catch (e) { $("result").textContent = e.message; }
  $("apply").disabled = false;
}

$("sign").addEventListener("submit", async event => {
  event.preventDefault();
  const f = $("sign").elements;
  $("refused").textContent = "";
  try {
    const r = await ask("sign-in", { user: f.user.value, key: f.key.value });
    token = r.token;
    f.key.value = "";
    await refresh();
  } catch (e) { $("refused").textContent = e.message; }
});
$("out").addEventListener("click", async () => { await ask("sign-out", {}).catch(() => {}); signedOut(); });
$("which").addEventListener("change", showFields);
$("change").addEventListener("submit", preview);
$("apply").addEventListener("click", apply);
$("cancel").addEventListener("click", () => { $("preview").hidden = true; });
document.addEventListener("keydown", event => { if (event.key === "Escape") $("preview").hidden = true; });
refresh();
