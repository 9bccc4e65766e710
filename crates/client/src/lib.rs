//! RADOS client: targeting, resend, tickets
