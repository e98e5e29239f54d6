/** Stands where something is being read. It appears late, so that quick answers do not flicker. */
export function Loading({ what }: { what: string }) {
  return (
    <p className="loading" role="status">
      Reading {what} …
    </p>
  );
}
