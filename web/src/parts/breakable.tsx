import { Fragment } from "react";

/** A name that breaks after `=` and `_` before it breaks anywhere. */
export function Breakable({ name }: { name: string }) {
  return name.split(/(?<=[=_])/).map((piece, at) => (
    <Fragment key={at}>
      {at > 0 && <wbr />}
      {piece}
    </Fragment>
  ));
}
