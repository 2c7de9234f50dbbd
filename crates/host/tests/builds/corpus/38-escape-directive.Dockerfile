# escape=`
FROM localhost/test/base
RUN echo one `
 two > /file
