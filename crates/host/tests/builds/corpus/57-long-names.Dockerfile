FROM localhost/test/base
RUN n=$(printf 'n%.0s' $(seq 1 120)); mkdir -p /$n/$n/$n && echo x > /$n/$n/$n/$n && ln -s /$n/$n/$n /$n/link
