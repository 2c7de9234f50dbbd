FROM localhost/test/base
HEALTHCHECK --interval=5m --timeout=3s --start-period=1s --retries=4 CMD wget -q localhost || exit 1
