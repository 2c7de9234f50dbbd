//! How the kernel is told about the layers of an overlay.

/// The most bytes of one option, without the zero at its end.
const OPTION_BYTES_MAX: usize = 255;

/// Returns the options that name these lower layers, topmost first. The names must not contain
/// colons.
///
/// Kernels before 6.7 know only one option for all of them, which is used as long as they fit. Newer
/// kernels take any number, one by one.
pub fn lower_options(names: &[String]) -> Vec<(&'static str, String)> {
    let all = names.join(":");
    if all.len() <= OPTION_BYTES_MAX {
        return vec![("lowerdir", all)];
    }
    names.iter().map(|name| ("lowerdir+", name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (100..100 + count).map(|number| number.to_string()).collect()
    }

    #[test]
    fn layers_are_one_option_as_long_as_they_fit() {
        assert_eq!(lower_options(&names(2)), [("lowerdir", "100:101".to_owned())]);
        let most = lower_options(&names(64));
        assert_eq!((most.len(), most[0].1.len()), (1, OPTION_BYTES_MAX));
        let more = lower_options(&names(65));
        assert_eq!((more.len(), more[64].clone()), (65, ("lowerdir+", "164".to_owned())));
    }
}
