FROM localhost/test/base
COPY grüße.txt /ümlaut/
RUN echo ok > '/naïve file'
LABEL text="grüße"
