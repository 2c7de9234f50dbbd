//! Browsers in which somebody has signed in before. Their guesses are counted apart, so that a
//! stranger who uses up the guesses for an address does not lock its owner out of their own
//! browser.

use crate::Auth;

/// How long a browser stays known after a sign-in.
pub const LIFE_S: i64 = 180 * 24 * 3600;
/// What the text in the cookie is sealed for.
const CONTEXT: &str = "known browsers";
/// All our texts are shorter than this; longer ones are refused unread.
const TEXT_MAX: usize = 1_024;

impl Auth {
    /// Makes the text by which the browser is known from now on as one of the account's.
    pub(crate) fn introduce(&self, email: &str) -> Result<String, store::Error> {
        let (ends, id) = (self.world().now().plus_s(LIFE_S).ms(), self.world().random_text(16));
        self.store().keyring().read().seal(CONTEXT, &format!("{ends} {id} {email}"))
    }

    /// Returns the name under which guesses for an address are counted: that of the browser, if it
    /// is known as one of the account's, or else the address.
    pub(crate) fn guesser(&self, email: &str, known: Option<&str>) -> String {
        let browser = known.and_then(|text| self.known_browser(text, email));
        browser.map_or_else(|| email.to_owned(), |id| format!("browser {id}"))
    }

    /// Returns the id of a known browser. One whose text is not ours, or was sealed with a key that
    /// is gone, is unknown.
    fn known_browser(&self, text: &str, email: &str) -> Option<String> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let opened = self.store().keyring().read().open(CONTEXT, text).ok()?;
        let mut parts = opened.splitn(3, ' ');
        let (ends, id, of) = (parts.next()?, parts.next()?, parts.next()?);
        let is_current = ends.parse::<i64>().ok()? > self.world().now().ms();
        (is_current && of == email).then(|| id.to_owned())
    }
}
