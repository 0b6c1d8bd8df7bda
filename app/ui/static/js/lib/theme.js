// @ts-check
import { signal } from "./signal.js";

/** @typedef {"system" | "light" | "dark"} Theme */

const KEY = "control-room.theme";
/** @type {Theme[]} */
const THEMES = ["system", "light", "dark"];

/** The chosen theme. */
export const theme = signal(read());

/** @returns {Theme} */
function read() {
  const kept = window.localStorage.getItem(KEY);
  return THEMES.find((each) => each === kept) || "system";
}

/** Apply the chosen theme. */
export function applyTheme() {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
}

/** Choose the next theme. */
export function nextTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  window.localStorage.setItem(KEY, theme.value);
  applyTheme();
}
