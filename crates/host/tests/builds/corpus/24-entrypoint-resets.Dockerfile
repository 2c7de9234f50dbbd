FROM localhost/test/base AS first
CMD ["from", "base"]
FROM first
ENTRYPOINT ["/entry"]
