"""What costs time, one question a file, asked of a timeline. Pure: arrays in, values out."""
