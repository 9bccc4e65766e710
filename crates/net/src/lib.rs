//! Joins msgr2 connections to sockets on a reactor
