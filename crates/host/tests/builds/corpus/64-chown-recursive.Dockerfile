FROM localhost/test/base
COPY app /srv/app
COPY links /srv/links
RUN chown -R ada:ada /srv && chmod -R g-w /srv/app
