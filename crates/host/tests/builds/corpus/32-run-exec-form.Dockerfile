FROM localhost/test/base
RUN ["/bin/sh", "-c", "echo exec > /exec"]
RUN ["mkdir", "/made"]
