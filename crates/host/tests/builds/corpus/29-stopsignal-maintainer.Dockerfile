FROM localhost/test/base
MAINTAINER Ada Lovelace <ada@example.com>
STOPSIGNAL SIGQUIT
