-- What keys that are for models alone may do, as JSON. Without it a key is for everything that its owner may do.
ALTER TABLE api_keys ADD COLUMN models TEXT;
