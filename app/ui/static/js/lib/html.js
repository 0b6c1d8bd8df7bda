// @ts-check
import { h } from "preact";
import htm from "htm";

/** Build elements from a tagged template; values are always text, never markup. */
export const html = htm.bind(h);
