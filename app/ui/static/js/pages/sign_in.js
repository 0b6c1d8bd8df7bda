// @ts-check
import { useState } from "preact/hooks";

import { keepSession, post, reachable } from "../lib/api.js";
import { html } from "../lib/html.js";
import { address, navigate } from "../lib/router.js";
import { Fault, PageTitle, useFault } from "../parts/basics.js";

/** Exchange the service's token for a sign-in of this tab. */
export function SignIn() {
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
    <${PageTitle} title="Sign in" lead="This service has a token: the value of CONTROL_ROOM_API_TOKEN where it was started." />
    <form class="card form" onSubmit=${signIn}>
      <label>Token <input id="token" type="password" autocomplete="current-password" required value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} /></label>
      <label>Your name (optional) <input autocomplete="name" maxlength="100" value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} /></label>
      <${Fault} error=${error} />
      <div class="actions"><button type="submit" class="primary">Sign in</button></div>
    </form>`;
}
