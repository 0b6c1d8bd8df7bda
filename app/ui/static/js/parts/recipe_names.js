/** Names of recipes in what counts for later runs, such as budgets: one that no recipe has may be misspelt. */
import { useEffect } from "preact/hooks";

import { html, signal, useValue } from "../lib/base.js";
import { useLive } from "../lib/live.js";
import { each } from "./basics.js";

/** Every recipe, and those of the runs that no recipe file describes. */
const OWN = ["*", "conference", "decompose", "prompt", "review_task"];

/** How many recipes one answer lists. */
const MOST = 1000;

/** The recipes that there are; null: they are not known, or not all of them. */
const known = signal(/** @type {string[] | null} */ (null));

/** Know the recipes while a page shows names of them. */
export function useRecipeNames() {
  const { data } = useLive(`/api/recipes?limit=${MOST}`, { pause: 10_000 });
  useEffect(() => {
    if (data) known.value = data.length < MOST ? data.map((/** @type {any} */ recipe) => recipe.recipe_id) : null;
  }, [data]);
}

/** A name, marked where no recipe has it now. @param {{name: string}} props */
export function RecipeName({ name }) {
  const names = useValue(known);
  const isUnknown = names && !names.includes(name) && !OWN.includes(name);
  return html`${name}${isUnknown && html` <span class="warn-text">(there is no such recipe now)</span>`}`;
}

/** What a field for a name suggests. @param {{id: string}} props */
export function RecipeNames({ id }) {
  return html`<datalist id=${id}>${each(useValue(known), (name) => html`<option value=${name} />`)}</datalist>`;
}
