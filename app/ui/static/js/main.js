// @ts-check
import { render } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import { isSignedIn, keepSession, post, reachable, signOut } from "./lib/api.js";
import { follow } from "./lib/feed.js";
import { html } from "./lib/html.js";
import { watchService } from "./lib/live.js";
import { address, interceptLinks, match, navigate } from "./lib/router.js";
import { signal, startClock, useValue } from "./lib/signal.js";
import { Empty, Fault, PageTitle, useFault } from "./parts/basics.js";
import { Help, installShortcuts } from "./parts/shortcuts.js";
import { Access } from "./pages/access.js";
import { Conference, Conferences } from "./pages/conferences.js";
import { Cost } from "./pages/cost.js";
import { Home, Inbox } from "./pages/home.js";
import { Agents, Issue, Issues, Recipes } from "./pages/library.js";
import { Notifications } from "./pages/notifications.js";
import { Plan, Plans } from "./pages/plans.js";
import { Run } from "./pages/run.js";
import { Runs } from "./pages/runs.js";
import { Start } from "./pages/start.js";
import { Trigger, Triggers } from "./pages/triggers.js";

/** @type {[string, (props: any) => any, string][]} */
const PAGES = [
  ["/", Home, "Home"],
  ["/inbox", Inbox, "Inbox"],
  ["/runs", Runs, "Runs"],
  ["/runs/:id", Run, "Run"],
  ["/plans", Plans, "Plans"],
  ["/plans/:id", Plan, "Plan"],
  ["/start", Start, "Start a run"],
  ["/conferences", Conferences, "Conferences"],
  ["/conferences/:id", Conference, "Conference"],
  ["/triggers", Triggers, "Triggers"],
  ["/triggers/:id", Trigger, "Trigger"],
  ["/cost", Cost, "Cost"],
  ["/recipes", Recipes, "Recipes"],
  ["/agents", Agents, "Agents"],
  ["/issues", Issues, "Issues"],
  ["/issues/:id", Issue, "Issue"],
  ["/notifications", Notifications, "Notifications"],
  ["/access", Access, "Access"],
  ["/sign-in", SignIn, "Sign in"],
];

/** What the navigation shows. */
const NAVIGATION = [
  ["/", "Home"],
  ["/inbox", "Inbox"],
  ["/runs", "Runs"],
  ["/plans", "Plans"],
  ["/triggers", "Triggers"],
  ["/notifications", "Notifications"],
  ["/cost", "Cost"],
  ["/issues", "Issues"],
  ["/conferences", "Conferences"],
  ["/recipes", "Recipes"],
  ["/agents", "Agents"],
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
  const [error, setError] = useFault();
  const signIn = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const session = await post("/api/session", { token, name });
      keepSession(session.session);
      reachable.value = "yes";
      const back = address.value.query.get("to") || "/";
      navigate(back.startsWith("/") && !back.startsWith("//") ? back : "/");
    } catch (caught) {
      setError(caught);
    }
  };
  return html`
    <${PageTitle} title="Sign in" lead="With the secret of your key, or with the token of the service (CONTROL_ROOM_API_TOKEN where it was started)." />
    <form class="card form" onSubmit=${signIn}>
      <label>Key or token <input id="token" type="password" autocomplete="current-password" required value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} /></label>
      <label>Your name (optional) <input autocomplete="name" maxlength="100" value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>
      <${Fault} error=${error} />
      <div class="actions"><button type="submit" class="primary">Sign in</button></div>
    </form>`;
}

/** @param {{path: string}} props */
function Navigation({ path }) {
  return html`<nav class="rail" aria-label="Main">
    <a class="brand" href="/"><img src="/ui/icon.svg" alt="" width="24" height="24" /> Control Room</a>
    <ul>${NAVIGATION.map(([to, label]) => html`<li><a href=${to} aria-current=${(to === "/" ? path === "/" : path.startsWith(to)) ? "page" : undefined}>${label}</a></li>`)}</ul>
    <div class="rail-foot">
      <a class="button primary" href="/start">Start a run</a>
      <button type="button" class="quiet" onClick=${nextTheme}>Theme: ${useValue(theme)}</button>
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
