"""The web UI: static pages over the interface at `/api`."""

# `@preact/signals` and its core took 3.9 KiB of the 90 KiB that the pages' JavaScript may have, compressed. The pages
# use a few plain signals: the address, the theme, the moment and two states of the connection. No value is computed
# from others, and nothing is batched.
#
# So `lib/base.js` holds a value that notifies its listeners, and `useValue` and `useNow` draw a component again when it
# changes. A component says what it follows, where the library found it out by itself.
#
# Price: a component that must follow a signal reads it by `useValue`. Computed values would be a reason for the
# library.
