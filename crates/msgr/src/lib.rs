//! msgr2.1 connections as pure state machines: bytes in, messages out
