FROM localhost/test/base
COPY . /srv
RUN chown -R ada:ada /srv && chmod -R g-w /srv/app
