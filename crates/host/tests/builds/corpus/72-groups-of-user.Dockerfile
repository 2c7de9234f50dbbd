FROM localhost/test/base
RUN echo 'shared:x:1600:bob,ada' >> /etc/group && echo 'other:x:1700:bob' >> /etc/group
RUN mkdir /shared && chown 0:1600 /shared && chmod 2770 /shared
USER ada
RUN id -G > /tmp/groups && touch /shared/of-ada
USER ada:staff
RUN id -G > /tmp/only-the-named-one
USER 1234
RUN id -G > /tmp/of-nobody
