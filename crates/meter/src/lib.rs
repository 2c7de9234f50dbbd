//! What ran and what was kept, as usage and as money.
