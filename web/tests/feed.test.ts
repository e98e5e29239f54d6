import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Feed } from "../src/api/feed";

/** A connection that the test drives. */
class Socket {
  static made: Socket[] = [];
  onmessage: (message: { data: string }) => void = () => {};
  onclose: ((event: { code: number }) => void) | null = () => {};

  constructor(readonly url: string) {
    Socket.made.push(this);
  }

  close(): void {
    this.onclose?.({ code: 1000 });
  }

  say(cursor: string, ...types: string[]): void {
    this.onmessage({ data: JSON.stringify({ cursor, events: types.map((type) => ({ type })) }) });
  }
}

const last = () => Socket.made.at(-1) as Socket;

beforeEach(() => {
  Socket.made = [];
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", Socket);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function opened(): { feed: Feed; seen: string[] } {
  const feed = new Feed(() => "ws://bench/api/v1/events");
  const seen: string[] = [];
  feed.onEvents((events) => seen.push(...events.map((event) => event.type)));
  feed.start();
  return { feed, seen };
}

test("a feed begins now, and goes on from its cursor when the connection breaks", () => {
  const { feed, seen } = opened();
  expect(last().url).toBe("ws://bench/api/v1/events?since=now");
  last().say("c1", "node.completed");
  expect(feed.state).toBe("live");
  last().onclose?.({ code: 1006 });
  expect(feed.state).toBe("lost");
  vi.advanceTimersByTime(500);
  expect(last().url).toBe("ws://bench/api/v1/events?since=c1");
  last().say("c2", "execution.completed");
  expect([feed.state, seen]).toEqual(["live", ["node.completed", "execution.completed"]]);
});

test("retries come less and less often, and a heartbeat keeps its cursor", () => {
  opened();
  last().say("c1");
  for (const wait of [500, 1000, 2000]) {
    last().onclose?.({ code: 1006 });
    const before = Socket.made.length;
    vi.advanceTimersByTime(wait - 1);
    expect(Socket.made.length).toBe(before);
    vi.advanceTimersByTime(1);
    expect(Socket.made.length).toBe(before + 1);
  }
  expect(last().url).toContain("since=c1");
});

test("a connection that is silent for too long is given up", () => {
  const { feed } = opened();
  last().say("c1");
  vi.advanceTimersByTime(40_000);
  expect(feed.state).toBe("lost");
  vi.advanceTimersByTime(500);
  expect(Socket.made.length).toBe(2);
});

test("when the cursor is gone everything is read again, and when the session ends nothing is", () => {
  const { feed } = opened();
  let reloads = 0;
  feed.onMissed(() => (reloads += 1));
  last().say("c1");
  last().onclose?.({ code: 4410 });
  vi.advanceTimersByTime(500);
  expect([reloads, last().url]).toEqual([1, "ws://bench/api/v1/events?since=now"]);
  last().onclose?.({ code: 4401 });
  vi.advanceTimersByTime(60_000);
  expect([feed.state, Socket.made.length]).toEqual(["ended", 2]);
});

test("a feed that was stopped connects no more", () => {
  const { feed } = opened();
  feed.stop();
  vi.advanceTimersByTime(60_000);
  expect(Socket.made.length).toBe(1);
});
