FROM localhost/test/base
RUN mkdir -p /target/app && chmod 700 /target && echo old > /target/app/main.py
COPY app /target/app
COPY app/sub /target
