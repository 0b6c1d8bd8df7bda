// @ts-check
import { render } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import { address, html, interceptLinks, match, navigate, signal, startClock, useValue } from "./lib/base.js";
import { follow, isSignedIn, keepSession, post, reachable, signOut, watchService } from "./lib/live.js";
import { Empty, Fault, Icon, PageTitle, typed, useAct, useFault } from "./parts/basics.js";
import { Help, installShortcuts } from "./parts/shortcuts.js";
import { Home, Inbox } from "./pages/home.js";

/**
 * Return a page that stands in for one whose module is loaded when it is opened.
 * @param {() => Promise<any>} load @param {string} name
 */
function later(load, name) {
  /** @type {any} */
  let page = null;
  return (/** @type {any} */ props) => {
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
    return loaded ? html`<${page} ...${props} />` : html`<${Fault} error=${error} retry=${() => window.location.reload()} />`;
  };
}

// A page is loaded when it is first opened, so that a visit loads what it shows.
const RUNS = () => import("./pages/runs.js");
const RUN = () => import("./pages/run.js");
const PLANS = () => import("./pages/plans.js");
const START = () => import("./pages/start.js");
const COST = () => import("./pages/cost.js");
const LIBRARY = () => import("./pages/library.js");
const SETTINGS = () => import("./pages/settings.js");

/** @type {[string, (props: any) => any, string][]} */
const PAGES = [
  ["/", Home, "Home"],
  ["/inbox", Inbox, "Inbox"],
  ["/runs", later(RUNS, "Runs"), "Runs"],
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
  ["/access", later(SETTINGS, "Access"), "Access"],
  ["/sign-in", SignIn, "Sign in"],
];

/** What the navigation shows: what happens, what is found, what can be started, and the service. */
const NAVIGATION = [
  ["/", "Home"],
  ["/inbox", "Inbox"],
  ["/runs", "Runs"],
  ["/plans", "Plans"],
  ["/cost", "Cost"],
  ["/issues", "Issues", "apart"],
  ["/conferences", "Conferences"],
  ["/recipes", "Recipes", "apart"],
  ["/agents", "Agents"],
  ["/triggers", "Triggers"],
  ["/notifications", "Notifications", "apart"],
  ["/access", "Access"],
];

function App() {
  const { path } = useValue(address);
  const service = useValue(reachable);
  const [page, props, title] = shown(path);
  useEffect(() => {
    if (service !== "refused" || path === "/sign-in") return;
    navigate(`/sign-in?${new URLSearchParams({ to: path + window.location.search })}`, { replace: true });
  }, [service, path]);
  // Before anything is typed on the new page: the focus must not be taken from what a person has just chosen.
  useLayoutEffect(() => {
    document.title = title === "Home" ? "Control Room" : `${title} · Control Room`;
    document.querySelector("h1")?.focus({ preventScroll: true });
    document.querySelector(".rail [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path]);
  return html`
    <a class="skip" href="#content">Skip to content</a>
    <${Navigation} path=${path} />
    <div class="body">
      ${service === "no" && html`<div class="banner" role="status">The connection to the service is lost. This page continues by itself when it is back.</div>`}
      <main id="content">${html`<${page} key=${path} ...${props} />`}</main>
    </div>
    <${Help} />
    <div id="announcements" class="hidden" role="status" aria-live="polite"></div>`;
}

/** @param {string} path @returns {[(props: any) => any, Record<string, string>, string]} */
function shown(path) {
  for (const [pattern, page, title] of PAGES) {
    const found = match(pattern, path);
    if (found) return [page, found, title];
  }
  return [NotFound, {}, "Not found"];
}

function NotFound() {
  return html`<${PageTitle} title="There is no such page" /><${Empty} title="The address may have changed."><p><a href="/">Go home</a></p></${Empty}>`;
}

/** Exchange the service's token for a sign-in of this tab. */
function SignIn() {
  const [token, setToken] = useState("");
  const [name, setName] = useState("");
  const [signIn, error] = useAct(async () => {
    const session = await post("/api/session", { token, name });
    keepSession(session.session);
    reachable.value = "yes";
    const back = address.value.query.get("to") || "/";
    navigate(back.startsWith("/") && !back.startsWith("//") ? back : "/");
  });
  return html`
    <${PageTitle} title="Sign in" lead="With the secret of your key, or with the token of the service (CONTROL_ROOM_API_TOKEN where it was started)." />
    <form class="card form" onSubmit=${signIn}>
      <label>Key or token <input id="token" type="password" autocomplete="current-password" required value=${token} onInput=${typed(setToken)} /></label>
      <label>Your name (optional) <input autocomplete="name" maxlength="100" value=${name} onInput=${typed(setName)} /></label>
      <${Fault} error=${error} />
      <div class="actions"><button type="submit" class="primary">Sign in</button></div>
    </form>`;
}

/** @param {{path: string}} props */
function Navigation({ path }) {
  const shownTheme = useValue(theme);
  return html`<nav class="rail" aria-label="Main">
    <a class="brand" href="/"><img src="/ui/icon.svg" alt="" width="24" height="24" /> Control Room</a>
    <a class="button primary" href="/start">Start a run</a>
    <ul>${NAVIGATION.map(([to, label, kind]) => html`<li class=${kind}><a href=${to} aria-current=${(to === "/" ? path === "/" : path.startsWith(to)) ? "page" : undefined}>${label}</a></li>`)}</ul>
    <div class="rail-foot">
      <button type="button" class="quiet" aria-label=${`Theme: ${shownTheme}`} onClick=${nextTheme}><${Icon} name="theme" /> <span>Theme: ${shownTheme}</span></button>
      ${useValue(isSignedIn) && html`<button type="button" class="quiet" onClick=${signOut}>Sign out</button>`}
    </div>
  </nav>`;
}

/** @typedef {"system" | "light" | "dark"} Theme */

const KEY = "control-room.theme";
/** @type {Theme[]} */
const THEMES = ["system", "light", "dark"];

/** The chosen theme. */
const theme = signal(chosenTheme());

/** @returns {Theme} */
function chosenTheme() {
  const kept = window.localStorage.getItem(KEY);
  return THEMES.find((each) => each === kept) || "system";
}

/** Apply the chosen theme. */
function applyTheme() {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
}

/** Choose the next theme. */
function nextTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  window.localStorage.setItem(KEY, theme.value);
  applyTheme();
}

applyTheme();
interceptLinks();
installShortcuts();
startClock();
watchService();
follow();
const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
