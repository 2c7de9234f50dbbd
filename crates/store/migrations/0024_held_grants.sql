-- Twice a second each server looks for what it holds: not among all that it ever held.
CREATE INDEX model_grants_held ON model_grants (ledger, ends_at) WHERE held > 0;
