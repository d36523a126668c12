//! What some providers document of their keys. Read it up before relying on it: windows have been shortened before.

use std::time::Duration;

use super::key::{Anchor, InvalidProvider, KeyEncoding, KeyPlace, KeySupport, Window};

impl KeySupport {
    /// Stripe API v1: `Idempotency-Key`, up to 255 characters, at least 24 h from the first request; after that the key is a new request.
    /// Source: <https://docs.stripe.com/api/idempotent_requests>.
    ///
    /// # Errors
    /// None with the numbers as they are.
    pub fn stripe() -> Result<Self, InvalidProvider> {
        Self::header("Idempotency-Key", DAY, 255)
    }

    /// Adyen: `Idempotency-Key`, up to 64 characters, at least 7 days from the first submission (older pages said 31), not across
    /// regions. Source: <https://docs.adyen.com/development-resources/api-idempotency>.
    ///
    /// # Errors
    /// None with the numbers as they are.
    pub fn adyen() -> Result<Self, InvalidProvider> {
        Self::header("Idempotency-Key", 7 * DAY, 64)
    }

    /// `PayPal` Orders v2: `PayPal-Request-Id`, up to 108 characters, 6 h (72 h on request). Source:
    /// <https://developer.paypal.com/docs/api/orders/v2/>.
    ///
    /// # Errors
    /// None with the numbers as they are.
    pub fn paypal_orders() -> Result<Self, InvalidProvider> {
        Self::header("PayPal-Request-Id", DAY / 4, 108)
    }

    /// Amazon SQS FIFO queues: the field `MessageDeduplicationId`, up to 128 characters, 5 minutes from the accepted send. Source:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-key-terms.html>.
    ///
    /// # Errors
    /// None with the numbers as they are.
    pub fn sqs_fifo() -> Result<Self, InvalidProvider> {
        let window = Window::new(Duration::from_secs(300), Anchor::FirstRequest)?;
        Self::new(KeyPlace::Field("MessageDeduplicationId".to_owned()), window, KeyEncoding::Hex, 128)
    }

    /// A service behind the layer of `tower-idempotency`: `Idempotency-Key`, up to 255 characters by default, for its tombstone window (30 days
    /// by default) from completion.
    ///
    /// # Errors
    /// [`InvalidProvider::Duration`] below 1 ms or above 36500 days.
    pub fn idempotency_layer(tombstone_window: Duration) -> Result<Self, InvalidProvider> {
        let window = Window::new(tombstone_window, Anchor::Completion)?;
        Self::new(KeyPlace::Header("Idempotency-Key".to_owned()), window, KeyEncoding::Hex, 255)
    }

    fn header(name: &str, window: Duration, longest: usize) -> Result<Self, InvalidProvider> {
        let window = Window::new(window, Anchor::FirstRequest)?;
        Self::new(KeyPlace::Header(name.to_owned()), window, KeyEncoding::Hex, longest)
    }
}

const DAY: Duration = Duration::from_secs(86_400);
