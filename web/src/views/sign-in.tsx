import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { send } from "../api/client";
import { Command } from "../parts/command";
import { ProblemNote } from "../parts/problem";

/** For people who are not signed in: a link on the server's machine, a token anywhere. */
export function SignIn() {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const signing = useMutation({
    mutationFn: () => send("POST", ["session"], { token: token.trim() }),
    onSuccess: () => client.resetQueries(),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signing.mutate();
  };
  return (
    <main className="sign-in">
      <h1>
        <img src="/assets/icon.svg" alt="" width="32" height="32" /> WTB
      </h1>
      <p>You are not signed in. On the machine of the server, this prints a link that signs you in:</p>
      <Command text="wtb serve --link" label="Type" />
      <form onSubmit={submit}>
        <label htmlFor="token">Or sign in with a token</label>
        <input
          id="token"
          type="password"
          autoComplete="off"
          spellCheck={false}
          placeholder="wtb_…"
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <button type="submit" disabled={token.trim() === "" || signing.isPending}>
          Sign in
        </button>
      </form>
      {signing.error !== null && <ProblemNote error={signing.error} />}
    </main>
  );
}
