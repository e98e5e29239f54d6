/** The live feed: one WebSocket for the whole page, which goes on from its cursor when the connection breaks. */
import type { LiveEvent } from "./types";

export type FeedState = "connecting" | "live" | "lost" | "ended";
type Handler = (events: readonly LiveEvent[]) => void;

interface Message {
  events: LiveEvent[];
  cursor: string;
}

const UNAUTHENTICATED = 4401;
const CURSOR_GONE = 4410;
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 10_000;
/** Heartbeats come at least every 15 seconds: a connection that is silent for longer is dead. */
const SILENCE_MS = 40_000;

export class Feed {
  private cursor = "now";
  private socket: WebSocket | null = null;
  private retryMs = FIRST_RETRY_MS;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly handlers = new Set<Handler>();
  private readonly watchers = new Set<() => void>();
  private readonly missed = new Set<() => void>();
  state: FeedState = "connecting";

  constructor(private readonly url: () => string = feedAddress) {}

  start(): void {
    if (this.socket === null && this.state !== "ended") this.connect();
  }

  stop(): void {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  /** Call a handler with every message's events, until the returned function is called. */
  onEvents(handler: Handler): () => void {
    this.handlers.add(handler);
    return () => this.handlers.delete(handler);
  }

  /** Call a watcher when the state changes. */
  onState(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Call a function when events may have been missed, so that everything on the page has to be read again. */
  onMissed(reload: () => void): () => void {
    this.missed.add(reload);
    return () => this.missed.delete(reload);
  }

  private connect(): void {
    const socket = new WebSocket(`${this.url()}?since=${encodeURIComponent(this.cursor)}`);
    this.socket = socket;
    this.expectMessage(socket);
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.expectMessage(socket);
      this.receive(JSON.parse(String(data)) as Message);
    };
    socket.onclose = ({ code }) => {
      if (socket === this.socket) this.lost(code);
    };
  }

  private expectMessage(socket: WebSocket): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (socket !== this.socket) return;
      socket.onclose = null;
      socket.close();
      this.lost(0);
    }, SILENCE_MS);
  }

  private receive(message: Message): void {
    this.cursor = message.cursor;
    this.retryMs = FIRST_RETRY_MS;
    this.become("live");
    if (message.events.length > 0) for (const handler of [...this.handlers]) handler(message.events);
  }

  private lost(code: number): void {
    clearTimeout(this.timer);
    this.socket = null;
    if (code === UNAUTHENTICATED) {
      this.become("ended");
      return;
    }
    if (code === CURSOR_GONE) {
      this.cursor = "now";
      for (const reload of [...this.missed]) reload();
    }
    this.become("lost");
    this.timer = setTimeout(() => this.connect(), this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, LONGEST_RETRY_MS);
  }

  private become(state: FeedState): void {
    if (state === this.state) return;
    this.state = state;
    for (const watcher of [...this.watchers]) watcher();
  }
}

function feedAddress(): string {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}/api/v1/events`;
}
