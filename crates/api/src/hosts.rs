//! Addresses by host name: previews and applications answer under a host of their own.

/// The address of the host that has `label` in front of the server's own name.
pub(crate) fn host_url(public_url: &str, label: &str) -> String {
    let (scheme, host, port) = parts(public_url);
    // Hosts below `localhost` work in browsers; below an IP address there are none.
    match ip(host) {
        Some(ip) if ip.is_loopback() => format!("{scheme}://{label}.localhost{port}"),
        Some(_) => format!("{scheme}://{host}{port}/-/{label}"),
        None => format!("{scheme}://{label}.{host}{port}"),
    }
}

/// What records of custom domains name to lead here: a host below the server's own, or its address where it has no name.
pub(crate) fn record_target(public_url: &str, label: &str) -> String {
    let (_, host, _) = parts(public_url);
    match ip(host) {
        Some(ip) if ip.is_loopback() => format!("{label}.localhost"),
        Some(ip) => ip.to_string(),
        None => format!("{label}.{host}"),
    }
}

/// The address of a preview. On a server for this machine alone it is a path, because programs rarely find hosts below
/// `localhost`; the data plane sends browsers, which do, from there to the host.
pub(crate) fn preview_url(public_url: &str, label: &str) -> String {
    let (scheme, host, port) = parts(public_url);
    let is_local = host == "localhost" || ip(host).is_some_and(|ip| ip.is_loopback());
    match is_local {
        true => format!("{scheme}://{host}{port}/-/{label}.preview"),
        false => host_url(public_url, &format!("{label}.preview")),
    }
}

/// Scheme, host, and the port with its colon.
fn parts(public_url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = public_url.split_once("://").unwrap_or(("http", public_url));
    let rest = rest.trim_end_matches('/');
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match rest.rfind(':').filter(|colon| is_port(&rest[colon + 1..])) {
        Some(colon) => (scheme, &rest[..colon], &rest[colon..]),
        None => (scheme, rest, ""),
    }
}

fn ip(host: &str) -> Option<std::net::IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{host_url, preview_url, record_target};

    #[test]
    fn a_host_is_put_in_front_where_hosts_can_be() {
        assert_eq!(host_url("https://holm.example.com", "a"), "https://a.holm.example.com");
        assert_eq!(host_url("http://localhost:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://127.0.0.1:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://[::1]:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://10.0.0.7:8080", "a"), "http://10.0.0.7:8080/-/a");
    }

    #[test]
    fn records_name_no_ports() {
        assert_eq!(record_target("https://holm.example.com:8443/", "domains"), "domains.holm.example.com");
        assert_eq!(record_target("http://127.0.0.1:8080", "domains"), "domains.localhost");
        assert_eq!(record_target("http://[2001:db8::7]:8080", "domains"), "2001:db8::7");
    }

    #[test]
    fn a_preview_is_found_by_programs_on_this_machine() {
        assert_eq!(preview_url("http://127.0.0.1:8080", "a"), "http://127.0.0.1:8080/-/a.preview");
        assert_eq!(preview_url("http://[::1]:8080/", "a"), "http://[::1]:8080/-/a.preview");
        assert_eq!(preview_url("http://localhost", "a"), "http://localhost/-/a.preview");
        assert_eq!(preview_url("http://10.0.0.7:8080", "a"), "http://10.0.0.7:8080/-/a.preview");
        assert_eq!(preview_url("https://holm.example.com", "a"), "https://a.preview.holm.example.com");
    }
}
