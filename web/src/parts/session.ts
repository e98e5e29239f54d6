import { createContext, use } from "react";
import type { Role, Session } from "../api/types";

export const SessionContext = createContext<Session | null>(null);

const RANKS: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };

/** Whether the person who is signed in has at least a role. The server checks it as well. */
export function useMay(role: Role): boolean {
  const session = use(SessionContext);
  return session !== null && RANKS[session.role] >= RANKS[role];
}
