//! Addresses by host name: previews and applications answer under a host of their own.

/// The address of the host that has `label` in front of the server's own name.
pub(crate) fn host_url(public_url: &str, label: &str) -> String {
    let (scheme, rest) = public_url.split_once("://").unwrap_or(("http", public_url));
    let rest = rest.trim_end_matches('/');
    let host = rest
        .rsplit_once(':')
        .map_or(rest, |(host, port)| if port.bytes().all(|b| b.is_ascii_digit()) { host } else { rest });
    // Hosts below `localhost` work in browsers; below an IP address there are none.
    match host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_loopback() => format!("{scheme}://{label}.localhost{}", &rest[host.len()..]),
        Ok(_) => format!("{scheme}://{rest}/-/{label}"),
        Err(_) => format!("{scheme}://{label}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::host_url;

    #[test]
    fn a_host_is_put_in_front_where_hosts_can_be() {
        assert_eq!(host_url("https://holm.example.com", "a"), "https://a.holm.example.com");
        assert_eq!(host_url("http://localhost:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://127.0.0.1:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://[::1]:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://10.0.0.7:8080", "a"), "http://10.0.0.7:8080/-/a");
    }
}
