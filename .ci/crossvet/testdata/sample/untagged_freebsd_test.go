package sample

var _ = tagged
