import { render } from "preact";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";

import { address, html, interceptLinks, match, navigate, present, signal, startClock, useNow, useValue } from "./lib/base.js";
import { aboutRuns, follow, isSignedIn, keepSession, post, reachable, request, role, signOut, useLive } from "./lib/live.js";
import { Empty, Fault, Icon, PageTitle, useAct, useFault, useFields } from "./parts/basics.js";
import { Home, Inbox, Runs } from "./pages/runs.js";

/** @type {Later} */
function later(load, name) {
  /** @type {any} */
  let page = null;
  return (props) => {
    const [error, setError] = useFault();
    const [loaded, setLoaded] = useState(page !== null);
    const service = useValue(reachable);
    useEffect(() => {
      if (!loaded) load().then((found) => ((page = found[name]), setLoaded(true)), setError);
    }, []);
    // A browser may keep a module that failed to load as failed: the document is loaded anew.
    useEffect(() => {
      if (error && service === "yes") window.location.reload();
    }, [service]);
    useLayoutEffect(() => {
      if (loaded) document.querySelector("h1")?.focus({ preventScroll: true });
    }, [loaded]);
    return loaded ? html`<${page} ...${props} />` : html`<${Fault} error=${error} />`;
  };
}

// A page is loaded when it is first opened, so that a visit loads what it shows.
const RUN = () => import("./pages/run.js");
const PLANS = () => import("./pages/plans.js");
const START = () => import("./pages/start.js");
const COST = () => import("./pages/cost.js");
const LIBRARY = () => import("./pages/library.js");
const SETTINGS = () => import("./pages/settings.js");

/** @type {Place[]} */
const PAGES = [
  ["/", Home, "Home"],
  ["/inbox", Inbox, "Inbox"],
  ["/runs", Runs, "Runs"],
  ["/runs/:id", later(RUN, "Run"), "Run"],
  ["/plans", later(PLANS, "Plans"), "Plans"],
  ["/plans/:id", later(PLANS, "Plan"), "Plan"],
  ["/start", later(START, "Start"), "Start a run"],
  ["/conferences", later(LIBRARY, "Conferences"), "Conferences"],
  ["/conferences/:id", later(LIBRARY, "Conference"), "Conference"],
  ["/triggers", later(SETTINGS, "Triggers"), "Triggers"],
  ["/triggers/:id", later(SETTINGS, "Trigger"), "Trigger"],
  ["/cost", later(COST, "Cost"), "Cost"],
  ["/recipes", later(LIBRARY, "Recipes"), "Recipes"],
  ["/agents", later(LIBRARY, "Agents"), "Agents"],
  ["/issues", later(LIBRARY, "Issues"), "Issues"],
  ["/issues/:id", later(LIBRARY, "Issue"), "Issue"],
  ["/notifications", later(SETTINGS, "Notifications"), "Notifications"],
  ["/rules", later(SETTINGS, "Rules"), "Rules"],
  ["/access", later(SETTINGS, "Access"), "Access"],
  ["/sign-in", SignIn, "Sign in"],
];

const WORK = ["/", "/inbox", "/runs", "/plans", "/issues", "/conferences", "/cost"];
const SETUP = ["/recipes", "/agents", "/triggers", "/notifications", "/rules", "/access"];

function App() {
  const { path } = useValue(address);
  const service = useValue(reachable);
  const [page, props, title] = shown(path);
  useEffect(() => {
    if (service !== "refused" || path === "/sign-in") return;
    navigate(`/sign-in?${new URLSearchParams({ to: path + window.location.search })}`, { replace: true, state: window.history.state });
  }, [service, path]);
  // Before anything is typed on the new page: the focus must not be taken from what a person has just chosen.
  useLayoutEffect(() => {
    document.documentElement.dataset.page = title;
    document.querySelector("h1")?.focus({ preventScroll: true });
    document.querySelector(".rail [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path]);
  return html`
    <a class="skip" href="#content">Skip to content</a>
    <${Navigation} path=${path} />
    <div class=${service === "no" ? "body lost" : "body"}>
      ${service === "no" && html`<${Lost} />`}
      <main id="content">${html`<${page} key=${path} ...${props} />`}</main>
    </div>
    <div id="announcements" role="status" aria-live="polite"></div>`;
}

/** The clock of the page stands still meanwhile. */
function Lost() {
  return html`<div class="banner" role="status">The connection to the service is lost; this page shows how things stood at ${new Date(useNow()).toLocaleTimeString()}. It continues by itself when the service is back.</div>`;
}

/** @type {FindPage} */
function shown(path) {
  for (const [pattern, page, title] of PAGES) {
    const found = match(pattern, path);
    if (found) return [page, found, title];
  }
  return [NotFound, {}, "Not found"];
}

function NotFound() {
  return html`<${PageTitle} title="There is no such page" /><${Empty} title="The address may have changed."><p><a href="/">Go home</a></p><//>`;
}

function SignIn() {
  const service = useValue(reachable);
  const ended = isSignedIn.value && service === "refused";
  const [values, change] = useFields({ token: "", name: "" });
  const [signIn, error] = useAct(async () => {
    const session = await post("/api/session", values);
    keepSession(session.session);
    reachable.value = "yes";
    const back = address.value.query.get("to") || "/";
    navigate(back.startsWith("/") && !back.startsWith("//") ? back : "/", { replace: true, state: window.history.state });
  });
  return html`
    <${PageTitle} title="Sign in" lead="With the secret of your key, or with the token of the service (CONTROL_ROOM_API_TOKEN where it was started)." />
    ${ended && html`<p class="notice">Your sign-in has ended: it or its key expired, or was revoked. What you wrote is kept.</p>`}
    <form class="card form" onSubmit=${signIn}>
      <label>Key or token <input id="token" type="password" autocomplete="current-password" required value=${values.token} onInput=${change("token")} /></label>
      <label>Your name (optional) <input autocomplete="name" maxlength="100" value=${values.name} onInput=${change("name")} /></label>
      <${Fault} error=${error} />
      <div class="actions"><button type="submit" class="primary">Sign in</button></div>
    </form>`;
}

/** Milliseconds after which the navigation counts what waits: the page itself comes first. */
const LATER = 1500;

function useStats() {
  const [counts, setCounts] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setCounts(true), LATER);
    return () => clearTimeout(timer);
  }, []);
  return useLive(counts ? "/api/stats" : null, { on: aboutRuns });
}

/** What the service lacks, and what works all the same. @type {Words} */
const LACKS = {
  store: "The service cannot reach all of its data. Orders and some pages wait for it; runs lose nothing, and continue by themselves.",
  disk: "The disk is full, or cannot be written. New runs are refused until there is room; runs lose nothing, and continue by themselves.",
  temporal: "The Temporal server does not answer. Runs wait for it; what you start or order meanwhile is kept.",
};

/** @param {Props} props `live`: the counts of the service. */
function Lacking({ live: { data, error } }) {
  const since = data?.service.temporal_away_since;
  const lack = error?.status === 503 && !/^st(art|opp)ing$/.test(error.code) ? "store" : data?.disk.is_full ? "disk" : since && "temporal";
  const noticed = useMemo(present, [lack]);
  return lack && html`<div class="banner" role="status" title=${error?.message}>${LACKS[lack]} <span class="muted">${lack === "temporal" ? "Since" : "Noticed"} ${new Date(lack === "temporal" ? since : noticed).toLocaleString()}</span></div>`;
}

/** @param {Props} props */
function Navigation({ path }) {
  const live = useStats();
  const { runs = {}, waits = {} } = live.data || {};
  const waiting = waits.gates + waits.plans + (runs.paused || 0);
  const shownTheme = useValue(theme);
  const signedIn = useValue(isSignedIn) && path !== "/sign-in";
  const me = useLive(signedIn ? "/api/session" : null, { pause: 60_000 }).data;
  useLayoutEffect(() => {
    role.value = document.documentElement.dataset.role = me?.role || "";
  }, [me]);
  const link = (/** @type {string} */ to) => html`<li><a href=${to} aria-current=${(to === "/" ? path === "/" : path.startsWith(to)) ? "page" : undefined}>${shown(to)[2]}${to === "/inbox" && waiting > 0 && html` <span class="count push" title="waiting for you">${waiting}</span>`}</a></li>`;
  return html`<nav class="rail" aria-label="Main">
    <a class="brand" href="/"><img src="/ui/icon.svg" alt="" width="24" height="24" /> Control Room</a>
    ${path !== "/sign-in" && html`<a class="button primary" href="/start">Start a run</a>
      <ul>${WORK.map(link)}<li class="apart" aria-hidden="true">Setup</li>${SETUP.map(link)}</ul>`}
    <div class="rail-foot">
      <button class="quiet" aria-label=${`Theme: ${shownTheme}`} onClick=${nextTheme}><${Icon} name="theme" /> <span>Theme: ${shownTheme}</span></button>
      <button class="quiet keys" onClick=${help}>Keys: ?</button>
      ${me?.role && html`<span class="muted keys">${me.name || "signed in"} · ${me.role}</span>`}
      ${signedIn && html`<button class="quiet" onClick=${signOut}>Sign out</button>`}
    </div>
  </nav><${Lacking} live=${live} />`;
}

const KEY = "control-room.theme";
const THEMES = ["system", "light", "dark"];

const theme = signal(window.localStorage.getItem(KEY) || THEMES[0]);
theme.subscribe((name) => (document.documentElement.dataset.theme = name));

function nextTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  window.localStorage.setItem(KEY, theme.value);
}

const PLACES = { h: "/", r: "/runs", i: "/inbox", p: "/plans", c: "/cost", s: "/start" };

/** Until when the key after g names a place. */
let going = 0;

/** The switch of all keys: who speaks to the browser types single characters by accident. */
const keys = /** @type {HTMLInputElement} */ (document.getElementById("keys-on"));

/** Listen to the keys of the UI, wherever the person is not writing. */
function installShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (leavesSearch(event)) return;
    if (!keys.checked || event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
    if (press(event.key)) event.preventDefault();
  });
}

/** @param {KeyboardEvent} event */
function leavesSearch(event) {
  if (!(event.target instanceof HTMLElement) || event.target.id !== "search") return false;
  if (event.key === "Escape") event.target.blur();
  return ["Enter", "ArrowDown"].includes(event.key) && move(1);
}

/** @param {EventTarget | null} target */
function isWriting(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT|DIALOG)$/.test(target.tagName) || Boolean(target.closest("dialog")));
}

/** @param {string} key @returns {boolean} Whether the key meant something. */
function press(key) {
  if (Date.now() < going) {
    going = 0;
    if (key in PLACES) navigate(PLACES[/** @type {keyof typeof PLACES} */ (key)]);
    return key in PLACES;
  }
  switch (key) {
    case "g":
      return Boolean((going = Date.now() + 1500));
    case "?":
      return help();
    case "/":
      document.getElementById("search")?.focus();
      return true;
    case "j":
    case "k":
      return move(key === "j" ? 1 : -1);
    case "a":
      return decide(0);
    case "d":
      return decide(1);
    default:
      return false;
  }
}

function rows() {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-row]")]);
}

/** @param {number} by */
function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  if (at < 0) return focus(all.find((row) => row.getBoundingClientRect().top >= 0));
  return focus(all[Math.min(all.length - 1, Math.max(0, at + by))]);
}

/** @param {HTMLElement | undefined} row */
function focus(row) {
  const link = row?.querySelector(".row-link");
  (link instanceof HTMLElement ? link : row)?.focus();
  return Boolean(row);
}

/** Press a decision's button of the question that has the focus, or of the first; it is confirmed there. @param {number} index */
function decide(index) {
  const gates = [...document.querySelectorAll("[data-gate]")];
  const gate = gates.find((each) => each.contains(document.activeElement)) || gates[0];
  const button = gate?.querySelectorAll("[data-decision]")[index];
  // A role that may not decide sees no such button.
  if (!(button instanceof HTMLElement) || !button.offsetParent) return false;
  button.click();
  return true;
}

function help() {
  const dialog = document.getElementById("keys");
  if (dialog instanceof HTMLDialogElement && !dialog.open) dialog.showModal();
  return true;
}

keys.checked = window.localStorage.getItem(keys.id) !== "no";
keys.onchange = () => window.localStorage.setItem(keys.id, keys.checked ? "yes" : "no");
interceptLinks();
installShortcuts();
startClock(() => reachable.value !== "no");
// A service that is away may come back where no page is asking it.
setInterval(async () => {
  if (reachable.value !== "no" || document.hidden) return;
  await request("GET", "/healthz").catch(() => undefined);
}, 2000);
follow();
const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
