"""The web UI: static pages that use the interface at `/api`."""

# `@preact/signals` and its core took 3.9 KiB of the 90 KiB that the pages' JavaScript may have, compressed. The pages
# use a few plain signals: the address, the theme, the present time and two states of the connection. No value is
# computed from others, and no changes are batched.
#
# So `lib/base.js` has a value that notifies its listeners, and `useValue` and `useNow` draw a component again when it
# changes. A component declares what it follows, while the library detected it.
#
# Price: a component that must follow a signal reads it with `useValue`. Computed values would be a reason for the
# library.
