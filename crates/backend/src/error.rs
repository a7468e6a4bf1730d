//! How a backend fails.

use belljar_codes::Code;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure with its code, what was being done, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub code: Code,
    pub message: String,
    pub remedy: Option<String>,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: None, source: None }
    }

    /// The refusal of a backend that has no store of images.
    #[must_use]
    pub fn no_images(backend: &str, image: &str) -> Self {
        let message =
            format!("the `{backend}` backend has no images, so it cannot start from `{image}`");
        Self::new(Code::NotEnforceable, message)
            .with_remedy("use `--backend docker`, or the template `host` or `rootfs:DIR`")
    }

    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }
}
