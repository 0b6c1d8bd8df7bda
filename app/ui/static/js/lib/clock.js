// @ts-check
import { signal } from "@preact/signals";

/** The present moment in milliseconds; relative times are counted from it. */
export const now = signal(Date.now());

/** Count on every second while the page is visible. */
export function startClock() {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1000);
}
