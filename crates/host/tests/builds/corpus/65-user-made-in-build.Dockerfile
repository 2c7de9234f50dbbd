FROM localhost/test/base
RUN echo 'app:x:500:500::/app:/bin/sh' >> /etc/passwd && echo 'app:x:500:' >> /etc/group
COPY --chown=app:app app /app
USER app:app
RUN id -un > /tmp/me && id -gn >> /tmp/me
