//! Reported usage of one call of a model, or of several together.

/// Reported usage. The price of a call can depend on the length of its prompt, which a sum does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BilledUsage<T> {
    /// The usage of one call.
    Call(T),
    /// The sum over several calls.
    Sum(T),
}

impl<T> BilledUsage<T> {
    /// The tokens, of one call or of several.
    pub fn tokens(&self) -> &T {
        match self {
            Self::Call(tokens) | Self::Sum(tokens) => tokens,
        }
    }

    /// The same usage in another type of tokens.
    pub fn map<U>(self, tokens: impl FnOnce(T) -> U) -> BilledUsage<U> {
        match self {
            Self::Call(one) => BilledUsage::Call(tokens(one)),
            Self::Sum(sum) => BilledUsage::Sum(tokens(sum)),
        }
    }
}
