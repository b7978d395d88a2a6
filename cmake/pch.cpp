// Carries the precompiled header that heavy rooms and tests reuse.
