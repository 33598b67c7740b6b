package sample

const number = missing
